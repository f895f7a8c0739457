# find_package(hypergrove) makes the targets hypergrove::hypergrove, the shared library, and hypergrove::static.
# Paths are relative to this file: the folder may be moved.
get_filename_component(_hypergrove_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET hypergrove::hypergrove)
    add_library(hypergrove::hypergrove SHARED IMPORTED)
    set_target_properties(hypergrove::hypergrove PROPERTIES
        IMPORTED_LOCATION "${_hypergrove_prefix}/lib/libhypergrove.so.@VERSION@"
        IMPORTED_SONAME "@SONAME@"
        INTERFACE_INCLUDE_DIRECTORIES "${_hypergrove_prefix}/include")
    add_library(hypergrove::static STATIC IMPORTED)
    set_target_properties(hypergrove::static PROPERTIES
        IMPORTED_LOCATION "${_hypergrove_prefix}/lib/libhypergrove.a"
        INTERFACE_LINK_LIBRARIES "@SYSTEM@"
        INTERFACE_INCLUDE_DIRECTORIES "${_hypergrove_prefix}/include")
endif()
unset(_hypergrove_prefix)
